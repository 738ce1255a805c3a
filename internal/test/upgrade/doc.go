// Package upgrade holds that a version of luatx works with what the version before has written, the other way round, and
// beside it. The version before is the commit that the file before names: the last release, once there is one, and at least
// the first commit with today's layout. Shards of other layouts are refused.
package upgrade
