package s3store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// beProcess makes the test's own program a credential_process, which does what it says.
const beProcess = "S3STORE_TEST_PROCESS"

// process is what it does.
func process(how string) {
	credentials := fmt.Sprintf(`{"Version": 1, "AccessKeyId": %q, "SecretAccessKey": %q}`, s3fake.AccessKey, s3fake.SecretKey)
	switch how {
	case "words":
		if want := []string{"two words", "one"}; strings.Join(os.Args[1:], "|") != strings.Join(want, "|") {
			os.Exit(1)
		}
		fmt.Println(credentials)
	case "hangs":
		<-time.After(time.Hour) // the runtime would end a program in which nobody waits for anything
	case "talks":
		for {
			if _, err := fmt.Println(strings.Repeat("secret", 1000)); err != nil {
				os.Exit(1)
			}
		}
	case "fails":
		os.Exit(3)
	case "version 2":
		fmt.Println(strings.Replace(credentials, "1", "2", 1))
	}
}

func TestACredentialProcessIsBounded(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	service := s3fake.New(t, "bucket")
	service.Put("bucket", "key", "body", nil)
	for how, want := range map[string]string{
		"words": "", "hangs": "takes too long", "talks": "says more than credentials take", "fails": "exit status 3", "version 2": "no credentials of version 1",
	} {
		dir := noCredentials(t)
		t.Setenv(beProcess, how)
		t.Setenv("AWS_PROFILE", "mine")
		t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
		text := fmt.Sprintf("# settings\n[default]\ncredential_process = nothing\n[profile mine]\ncredential_process = %q \"two words\" one\n", self)
		if err := os.WriteFile(filepath.Join(dir, "config"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := chained(t, service)
		if how == "hangs" {
			s.FetchWithin(100 * time.Millisecond)
		}
		_, err := s.Stat(t.Context(), "key", muxcore.Conditions{})
		switch {
		case want == "" && err != nil:
			t.Errorf("Stat with a process that does as it is told = %v", err)
		case want != "" && (muxcore.CodeOf(err) != muxcore.CodeDenied || !strings.Contains(fmt.Sprint(err), "credential_process: ") || !strings.Contains(fmt.Sprint(err), want)):
			t.Errorf("Stat with a process that does %q = %v, want %s that says %q", how, err, muxcore.CodeDenied, want)
		case strings.Contains(fmt.Sprint(err), "secret"):
			t.Errorf("Stat = %v, which shows what the process said", err)
		}
	}
}

// Whoever came in the last minute of credentials waited for new ones, and failed with those who gave none, although they still held.
func TestCredentialsAreUsedUntilTheyExpire(t *testing.T) {
	noCredentials(t)
	service := s3fake.New(t, "bucket")
	service.Put("bucket", "key", "body", nil)
	hang := make(chan bool)
	var issued atomic.Int64
	expiring(t, service, func() time.Duration {
		if issued.Add(1) > 1 {
			<-hang
		}
		return 90 * time.Second
	})
	at := &clock{now: time.Now()}
	s := chainedAt(t, service, at.read)
	stat := func(when string) {
		t.Helper()
		if _, err := s.Stat(t.Context(), "key", muxcore.Conditions{}); err != nil {
			t.Errorf("Stat %s = %v", when, err)
		}
	}
	stat("at first")
	at.advance(45 * time.Second)
	for range 3 {
		stat("in the last minute, while new ones are fetched")
	}
	at.advance(time.Minute)
	waits := make(chan error, 1)
	go func() {
		_, err := s.Stat(t.Context(), "key", muxcore.Conditions{})
		waits <- err
	}()
	select {
	case err := <-waits:
		t.Errorf("Stat with credentials that have expired = %v, want it to wait for new ones", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(hang)
	if err := <-waits; err != nil {
		t.Errorf("Stat when they are there = %v", err)
	}
	if n := issued.Load(); n != 2 {
		t.Errorf("credentials were fetched %d times, want 2", n)
	}
}
