package s3store_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(beProcess); how != "" { // a credential_process
		process(how)
		return
	}
	cloudtest.Main(m)
}

// settings are those of a bucket of s.
func settings(s *s3fake.Service, bucket string) s3store.Settings {
	return s3store.Settings{Bucket: bucket, Endpoint: s.URL, AccessKey: s3fake.AccessKey, SecretKey: s3fake.SecretKey}
}

// open makes a store of settings.
func open(tb testing.TB, set s3store.Settings) *s3store.Store {
	tb.Helper()
	return cloudtest.Open(tb, s3store.New, set)
}

// suite runs the conformance suite on buckets of one service, and then looks whether anything is left lying about.
func suite(t *testing.T, skip map[string]string, quick []string, make func(testing.TB, s3store.Settings) muxcore.Store) {
	t.Helper()
	service := s3fake.New(t)
	h := storetest.Harness{TimeResolution: time.Second, Skip: skip, Quick: quick}
	cloudtest.Suite(t, h, func(tb testing.TB, n int64) muxcore.Store {
		name := fmt.Sprintf("bucket-%d", n)
		service.AddBucket(name)
		tb.Cleanup(func() {
			for _, key := range service.Keys(name) {
				if strings.Contains(key, ".storage_mux-probe") {
					tb.Errorf("%s is left of a trial", key)
				}
			}
		})
		service.MinPart(1)
		return make(tb, settings(service, name))
	})
	if left := service.Uploads(); left > 0 {
		t.Errorf("%d uploads by parts were neither completed nor aborted", left)
	}
}

func TestConformance(t *testing.T) {
	suite(t, nil, nil, func(tb testing.TB, set s3store.Settings) muxcore.Store { return open(tb, set) })
}

// notOfUploads are checks for which it does not matter how objects got there.
func notOfUploads() map[string]string {
	skip := map[string]string{}
	for _, name := range []string{
		"every list is what an oracle says", "pages give each entry once", "a long list is complete", "a list may be broken off and run again",
		"what an entry says is true", "keys are bytes and come back as they were", "keys that look alike are different objects",
		"a store refuses a key it cannot hold and changes nothing", "conditions of reads follow RFC 9110",
	} {
		skip[name] = "as with other uploads, and it costs time"
	}
	return skip
}

// ofUploads are checks with bodies that are large enough for parts.
var ofUploads = []string{
	"objects of every size are read whole", "bodies of known and unknown length are kept", "a body is neither closed nor read after Put returns",
	"a short or long body changes nothing", "a body that fails changes nothing", "an overwrite replaces the whole object",
	"readers beside writers read one whole version", "a put whose context ends is whole or not at all",
}

func TestConformanceOfUploadsByParts(t *testing.T) {
	suite(t, notOfUploads(), ofUploads, func(tb testing.TB, set s3store.Settings) muxcore.Store {
		s := open(tb, set)
		s.Shrink(int64(storetest.Times(8000, 2000)), 10_000)
		return s
	})
}

func TestConformanceOfPartsThatAreStreamed(t *testing.T) {
	suite(t, notOfUploads(), ofUploads, func(tb testing.TB, set s3store.Settings) muxcore.Store {
		s := open(tb, set)
		if storetest.Thorough {
			s.Shrink(1<<17, 3)
		} else {
			s.Shrink(1<<16, 4)
		}
		return s
	})
}

func TestConformanceInAMuxBelowAPrefix(t *testing.T) {
	suite(t, cloudtest.NotInMux(), storetest.Beneath(), func(tb testing.TB, set s3store.Settings) muxcore.Store {
		set.Prefix = "/a b/é/"
		return cloudtest.InMux(tb, open(tb, set))
	})
}
