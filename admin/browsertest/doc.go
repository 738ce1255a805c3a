// Package browsertest tests the console in a browser. A class of events is found, previewed, re-armed and watched by mouse
// and by keyboard, and an accessibility checker examines every page. It is a separate module, because it links a driver of
// Chromium.
//
// Without Chromium its tests are skipped, or fail if LUATX_VERIFY is set. CONSOLE_PICTURES=1 writes the pictures of
// docs/console.md.
package browsertest
