package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

const (
	diskSize = 3 << 30
	// diskLeft is the free space of a full disk in bytes, so that it is full in the middle of a write.
	diskLeft = 256 << 10
	pageSize = 4 << 10
)

// Disk is a file system in memory.
type Disk struct{ dir string }

// CanMount returns the reason why the run cannot mount a file system, or "" if it can.
func CanMount() string {
	switch {
	case runtime.GOOS != "linux":
		return "requires Linux"
	case os.Geteuid() != 0:
		return "requires root"
	}
	return ""
}

func mountDisk(ctx context.Context, under string) (*Disk, error) {
	dir, err := os.MkdirTemp(under, "disk-")
	if err != nil {
		return nil, err
	}
	if err := mount(ctx, "-t", "tmpfs", "-o", fmt.Sprint("size=", diskSize), "tmpfs", dir); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return &Disk{dir}, nil
}

// Fill fills the disk almost completely. Empty undoes that.
func (d *Disk) Fill(ctx context.Context) error {
	used := int64(0)
	err := filepath.WalkDir(d.dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return ignoreGone(err)
		}
		info, err := entry.Info()
		if err == nil {
			used += (info.Size() + pageSize - 1) / pageSize * pageSize
		}
		return ignoreGone(err)
	})
	if err != nil {
		return err
	}
	return d.resize(ctx, used+diskLeft)
}

// ignoreGone ignores the error for a file that the server has just deleted.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Empty restores the free space of the disk.
func (d *Disk) Empty(ctx context.Context) error { return d.resize(ctx, diskSize) }

func (d *Disk) resize(ctx context.Context, bytes int64) error {
	return mount(ctx, "-o", fmt.Sprint("remount,size=", bytes), d.dir)
}

func (d *Disk) unmount() error {
	out, err := exec.CommandContext(context.Background(), "umount", d.dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("umount %s: %w: %s", d.dir, err, out)
	}
	return os.Remove(d.dir)
}

func mount(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "mount", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount %v: %w: %s", args, err, out)
	}
	return nil
}
