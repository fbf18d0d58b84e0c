package gocdk

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"gocloud.dev/blob/driver"
	"gocloud.dev/blob/drivertest"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Run runs the suite of the kit over what open makes: an empty store for every test, open until that ends.
func Run(t *testing.T, open func(testing.TB) muxcore.Store) {
	t.Helper()
	drivertest.RunConformanceTests(t, func(_ context.Context, t *testing.T) (drivertest.Harness, error) {
		store := open(t)
		if strings.HasSuffix(t.Name(), "/TestIfNotExist") && !muxcore.CapabilitiesOf(store).ConditionalWrite {
			t.Skip("the store decides no conditions of writes, and says so")
		}
		return harness{store}, nil
	}, nil)
}

// harness implements drivertest.Harness.
type harness struct{ store muxcore.Store }

// MakeDriver implements drivertest.Harness.
func (h harness) MakeDriver(context.Context) (driver.Bucket, error) { return New(h.store), nil }

// MakeDriverForNonexistentBucket implements drivertest.Harness: nothing is such a bucket.
func (harness) MakeDriverForNonexistentBucket(context.Context) (driver.Bucket, error) {
	return nil, nil //nolint:nilnil // as the kit has it
}

// HTTPClient implements drivertest.Harness.
func (harness) HTTPClient() *http.Client { return nil }

// SupportsCopy implements drivertest.Harness.
func (harness) SupportsCopy() bool { return true }

// SupportsNonSlashDelimiters implements drivertest.Harness.
func (harness) SupportsNonSlashDelimiters() bool { return true }

// SkipDownloadAt implements drivertest.Harness.
func (harness) SkipDownloadAt() bool { return false }

// Close implements drivertest.Harness.
func (harness) Close() {}
