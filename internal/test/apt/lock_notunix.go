//go:build !unix

package apt

import "errors"

func lockFile(string) (func(), error) { return nil, errors.ErrUnsupported }
