package luatxtest

import "testing"

// CheckPublisher runs the checks of TestPublisher one by one; wrap runs each.
func CheckPublisher(t testing.TB, open func(t testing.TB) PublisherTarget, wrap func(name string, run func(testing.TB))) {
	t.Helper()
	for _, check := range publisherChecks() {
		wrap(check.name, func(t testing.TB) { t.Helper(); check.run(t, open(t)) })
	}
}

// CheckDriver runs the checks of TestDriver one by one; wrap runs each.
func CheckDriver(t testing.TB, open func(t testing.TB) DriverTarget, wrap func(name string, run func(testing.TB))) {
	t.Helper()
	for _, check := range driverChecks() {
		wrap(check.name, func(t testing.TB) { t.Helper(); check.on(t, open) })
	}
}
