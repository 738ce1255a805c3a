package main

import (
	"github.com/luatx/luatx/bench/internal/commit"
	"github.com/luatx/luatx/bench/internal/instructions"
	"github.com/luatx/luatx/bench/internal/relaying"
	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/bench/internal/way"
)

// groups returns all groups of measurements in the order of the report.
func groups() []suite.Group {
	return []suite.Group{commit.Group(), instructions.Group(), way.Group(), relaying.Group()}
}
