package matrix

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// server returns the name of the server program in an image.
func server(image string) string {
	if strings.Contains(image, "valkey") {
		return "valkey-server"
	}
	return "redis-server"
}

// programOf extracts an image's server program with its libraries, and returns the path of a command that runs it here.
// Tests can then start, stop and kill servers of that version.
func programOf(t *testing.T, image string) string {
	t.Helper()
	root := t.TempDir()
	must(t, export(t.Context(), image, root))
	loaders, err := filepath.Glob(filepath.Join(root, "usr/lib*", "ld-linux-*.so.*"))
	must(t, err)
	more, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-*", "ld-linux-*.so.*"))
	must(t, err)
	libraries, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-*"))
	must(t, err)
	binary := filepath.Join(root, "usr/bin", server(image))
	if _, err := os.Stat(binary); err != nil {
		binary = filepath.Join(root, "usr/local/bin", server(image)) // the path in public images
	}
	loaders = append(loaders, more...)
	if len(loaders) == 0 || len(libraries) == 0 {
		t.Fatalf("%s has no dynamic loader that is known here", image)
	}
	command := filepath.Join(t.TempDir(), server(image))
	modules := filepath.Join(libraries[0], "lua", "5.1", "?.so") // for distributions that package cjson separately
	text := fmt.Sprintf("#!/bin/sh\nLUA_CPATH=%q exec %q --library-path %q %q \"$@\"\n", modules, loaders[0], strings.Join(libraries, ":"), binary)
	must(t, os.WriteFile(command, []byte(text), 0o700)) //nolint:gosec // it is a program
	return command
}

// export copies the programs and libraries of an image into a directory.
func export(ctx context.Context, image, root string) error {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	defer func() { _ = provider.Close() }()
	container, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: testcontainers.ContainerRequest{Image: image},
	})
	if err != nil {
		return err
	}
	defer func() { _ = container.Terminate(context.WithoutCancel(ctx)) }()
	files, err := provider.Client().ContainerExport(ctx, container.GetContainerID(), client.ContainerExportOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }()
	return unpack(files, root)
}

// unpack writes the files of usr/bin, usr/local/bin and usr/lib.
func unpack(archive io.Reader, root string) error {
	for in := tar.NewReader(archive); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(header.Name)
		if !filepath.IsLocal(name) || !strings.HasPrefix(name, "usr/bin/") && !strings.HasPrefix(name, "usr/lib") && !strings.HasPrefix(name, "usr/local/bin/") {
			continue
		}
		if err := write(in, header, filepath.Join(root, name)); err != nil {
			return err
		}
	}
}

func write(in io.Reader, header *tar.Header, name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeSymlink:
		if filepath.IsAbs(header.Linkname) {
			return nil // the link would lead out of the image
		}
		return os.Symlink(header.Linkname, name)
	case tar.TypeReg:
		file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o700) //nolint:gosec // it is a program
		if err != nil {
			return err
		}
		_, err = io.Copy(file, in)
		return errors.Join(err, file.Close())
	}
	return nil
}
