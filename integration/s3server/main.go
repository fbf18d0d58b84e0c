// Command s3server is versitygw, a real S3 server, over a folder, for tests. It is a module of its own because it is large:
// whoever does not test against it does not build it.
//
//	s3server <address> <folder>
//
// The folder is to be empty. Keys and region are those below. It ends when its standard input does, so that it never
// outlives the test that started it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: s3server <address> <folder>")
	}
	root, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	if err := (meta.XattrMeta{}).Test(root); err != nil { // what it has beside is not kept in step with the objects
		return fmt.Errorf("extended attributes: %w", err)
	}
	gateway, err := posix.New(root, meta.XattrMeta{}, posix.PosixOpts{NewDirPerm: 0o700, Concurrency: 100})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return embedgw.RunVersityGW(ctx, gateway, &embedgw.Config{
		RootUserAccess: "access", RootUserSecret: "very/Secret+Key", Region: "us-east-1", Ports: []string{args[0]},
		MaxConnections: 4096, MaxRequests: 2048, MultipartMaxParts: 10_000, KeepAlive: true, Quiet: true,
	})
}
