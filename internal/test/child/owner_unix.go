//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// Owner returns the first of the users that exists, to run a server as that refuses to run as root. It returns nil if the
// test process does not belong to root.
func Owner(names ...string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // nobody else is needed
	}
	for _, name := range names {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUser := strconv.ParseUint(found.Uid, 10, 32)
		gid, errGroup := strconv.ParseUint(found.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(errUser, errGroup)
	}
	return nil, fmt.Errorf("cannot run the server: none of the users %q exists", names)
}

// Directory makes a temporary directory of the owner's.
func Directory(pattern string, owner *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err != nil || owner == nil {
		return dir, err
	}
	return dir, os.Chown(dir, int(owner.Uid), int(owner.Gid))
}
