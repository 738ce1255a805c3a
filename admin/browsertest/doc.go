// Package browsertest holds the console to its word in a browser: a class of events is found, previewed, re-armed and watched
// by mouse and by keyboard, and a checker of accessibility looks at every page. It is a module of its own, since it links a
// driver of Chromium.
//
// Without Chromium its tests are skipped; where LUATX_VERIFY is set they fail. CONSOLE_PICTURES=1 writes the pictures of docs/console.md.
package browsertest
