//go:build !unix

package redistest

import (
	"errors"

	"github.com/luatx/luatx/internal/test/child"
)

func pause(*child.Process) error  { return errors.ErrUnsupported }
func resume(*child.Process) error { return errors.ErrUnsupported }
