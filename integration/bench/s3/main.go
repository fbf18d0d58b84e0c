// Command s3 measures how long a large object takes up to, and down from, a real S3 server (versitygw, on this machine)
// through the store, beside the same by minio-go alone: in turns, in one run, medians. It says as well how much memory the
// process had at most while the store alone was at work.
//
//	cd integration && go run ./bench/s3
//
// S3SERVER_BIN names the server; without it, it is built, which takes minutes the first time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/integration/s3d"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

const bucket = "bench"

func main() {
	rounds := flag.Int("rounds", 3, "how often each is measured")
	size := flag.Int64("mib", 1024, "the size of the object, in MiB")
	flag.Parse()
	if err := run(context.Background(), *rounds, *size<<20); err != nil {
		fmt.Fprintln(os.Stderr, "s3:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, size int64) error {
	if rounds < 1 || size < 1 {
		return errors.New("rounds and mib must be positive")
	}
	address, stop, err := start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	defer rig.AtInterrupt(stop)()
	client, err := minio.New(address, &minio.Options{Creds: credentials.NewStaticV4(s3d.AccessKey, s3d.SecretKey, ""), Region: s3d.Region})
	if err != nil {
		return err
	}
	if err := await(ctx, client); err != nil {
		return err
	}
	store, err := s3store.New(s3store.Settings{Bucket: bucket, Endpoint: "http://" + address, AccessKey: s3d.AccessKey, SecretKey: s3d.SecretKey})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	ways := []way{
		{"store, up", func() error {
			_, err := store.Put(ctx, "ours", newSource(size), size, muxcore.PutOptions{})
			return err
		}, nil},
		{"minio-go, up", func() error {
			_, err := client.PutObject(ctx, bucket, "theirs", newSource(size), size, minio.PutObjectOptions{})
			return err
		}, nil},
		{"store, down", func() error {
			o, err := store.Get(ctx, "ours", muxcore.GetOptions{})
			if err != nil {
				return err
			}
			return drain(o.Body, size)
		}, nil},
		{"minio-go, down", func() error {
			o, err := client.GetObject(ctx, bucket, "theirs", minio.GetObjectOptions{})
			if err != nil {
				return err
			}
			return drain(o, size)
		}, nil},
	}
	return measure(ways, rounds, size)
}

// way is one that is measured.
type way struct {
	name string
	do   func() error
	took []time.Duration
}

// measure begins with the store alone, for its memory, and then takes turns.
func measure(ways []way, rounds int, size int64) error {
	for _, i := range []int{0, 2} {
		if err := ways[i].do(); err != nil {
			return fmt.Errorf("%s: %w", ways[i].name, err)
		}
	}
	_, _ = fmt.Fprintf(os.Stdout, "most memory of the process with the store at work: %s\n", peak())
	for range rounds {
		for i := range ways {
			runtime.GC()
			begun := time.Now()
			if err := ways[i].do(); err != nil {
				return fmt.Errorf("%s: %w", ways[i].name, err)
			}
			ways[i].took = append(ways[i].took, time.Since(begun))
		}
	}
	for i := range ways {
		slices.Sort(ways[i].took)
		median := ways[i].took[rounds/2]
		_, _ = fmt.Fprintf(os.Stdout, "%-15s %8.2f s %8.1f MiB/s\n", ways[i].name, median.Seconds(), float64(size)/(1<<20)/median.Seconds())
	}
	for _, i := range []int{0, 2} {
		_, _ = fmt.Fprintf(os.Stdout, "%s beside minio-go: %.2f of its throughput\n", ways[i].name, ways[i+1].took[rounds/2].Seconds()/ways[i].took[rounds/2].Seconds())
	}
	return nil
}

// peak is the most memory that the process had, as the kernel counts it.
func peak() string {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown here"
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown here"
}

// source is a body that is made as it is read, and costs little.
type source struct {
	block []byte
	left  int64
}

func newSource(size int64) *source {
	s := &source{block: make([]byte, 64<<10), left: size}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(s.block)
	return s
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), s.left)], s.block)
	s.left -= int64(n)
	return n, nil
}

func drain(body io.ReadCloser, size int64) error {
	defer func() { _ = body.Close() }()
	n, err := io.Copy(io.Discard, body)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes of %d", n, size)
	}
	return err
}

// start runs the server over a folder of its own.
func start(ctx context.Context) (address string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "s3bench")
	if err != nil {
		return "", nil, err
	}
	binary := os.Getenv("S3SERVER_BIN")
	if binary == "" {
		binary = filepath.Join(dir, "s3server")
		build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
		build.Dir = "s3server"
		if out, err := build.CombinedOutput(); err != nil {
			return "", nil, fmt.Errorf("building versitygw: %w: %s", err, out)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = ln.Addr().String()
	_ = ln.Close()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, binary, address, data)
	if _, err := cmd.StdinPipe(); err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	return address, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}, nil
}

// await waits for the server, and makes the bucket.
func await(ctx context.Context, client *minio.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
