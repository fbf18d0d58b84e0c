// Package s3d runs versitygw, a real S3 server, for tests, on loopback and over a folder of the test. S3SERVER_BIN names it,
// or it is built from the module beside this one, which takes minutes the first time on a machine.
package s3d

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// What signs in, as s3server has it.
const (
	AccessKey = "access"
	SecretKey = "very/Secret+Key"
	Region    = "us-east-1"
)

const (
	buildWithin = 20 * time.Minute
	startWithin = 3 * time.Minute
	startTries  = 5
)

// Server is a running server.
type Server struct {
	URL string

	// Client is another client of it.
	Client *minio.Core

	mu    sync.Mutex
	boxes int
}

var built struct {
	once sync.Once
	path string
	err  error
}

// Binary is the server, built once for all tests if there is none.
func Binary(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv("S3SERVER_BIN"); path != "" {
		return path
	}
	built.once.Do(func() { built.path, built.err = build() })
	if built.err != nil {
		tb.Fatalf("building versitygw: %v", built.err)
	}
	return built.path
}

// build builds the program. Nothing of it is tested with the race detector, and nothing needs C.
func build() (string, error) {
	dir, err := os.MkdirTemp("", "s3server")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildWithin)
	defer cancel()
	path := filepath.Join(dir, "s3server")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
	cmd.Dir = "s3server"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return path, fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return path, nil
}

// Clean removes what Binary has built. It is for the end of all tests.
func Clean() {
	if built.path != "" {
		_ = os.RemoveAll(filepath.Dir(built.path))
	}
}

// Start runs a server until the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	binary := Binary(tb)
	for try := 1; ; try++ {
		s, log := start(tb, binary)
		if s != nil {
			return s
		}
		if strings.Contains(log, "extended attributes") {
			tb.Skipf("optional: the temporary folder has no extended attributes, which versitygw keeps metadata in: %s", log)
		}
		if try == startTries || !strings.Contains(log, "address already in use") {
			tb.Fatalf("versitygw did not start: %s", log)
		}
	}
}

// start tries it once.
func start(tb testing.TB, binary string) (s *Server, log string) {
	tb.Helper()
	address := rig.FreeAddress(tb)
	out := new(syncBuffer)
	cmd := exec.Command(binary, address, tb.TempDir())
	cmd.Stdout, cmd.Stderr = out, out
	alive, err := cmd.StdinPipe() // which ends with the tests, whatever ends them, and the server with it
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting versitygw: %v", err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }()
	tb.Cleanup(func() {
		_ = alive.Close()
		_ = cmd.Process.Kill()
		<-exited
	})
	client, err := minio.NewCore(address, &minio.Options{Creds: credentials.NewStaticV4(AccessKey, SecretKey, ""), Region: Region})
	if err != nil {
		tb.Fatal(err)
	}
	s = &Server{URL: "http://" + address, Client: client}
	ctx, cancel := context.WithTimeout(tb.Context(), startWithin)
	defer cancel()
	for {
		if _, err := client.ListBuckets(ctx); err == nil {
			return s, ""
		}
		select {
		case <-exited:
			return nil, out.String()
		case <-ctx.Done():
			return nil, "it does not answer; " + out.String()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Bucket makes an empty bucket.
func (s *Server) Bucket(tb testing.TB) string {
	tb.Helper()
	s.mu.Lock()
	s.boxes++
	name := fmt.Sprintf("bucket-%d", s.boxes)
	s.mu.Unlock()
	if err := s.Client.MakeBucket(tb.Context(), name, minio.MakeBucketOptions{}); err != nil {
		tb.Fatalf("making a bucket: %v", err)
	}
	return name
}

// Uploads counts the uploads by parts of a bucket that have not ended.
func (s *Server) Uploads(tb testing.TB, bucket string) int {
	tb.Helper()
	list, err := s.Client.ListMultipartUploads(tb.Context(), bucket, "", "", "", "", 1000)
	if err != nil {
		tb.Fatalf("listing uploads: %v", err)
	}
	return len(list.Uploads)
}

// syncBuffer is what the server writes.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*syncBuffer)(nil)

// Write implements io.Writer.
func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is all that was written.
func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
