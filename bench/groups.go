package main

import (
	"github.com/luatx/luatx/bench/internal/commit"
	"github.com/luatx/luatx/bench/internal/suite"
)

// groups are all measurements, in the order of the report.
func groups() []suite.Group {
	return []suite.Group{commit.Group()}
}
