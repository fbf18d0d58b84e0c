package s3store_test

import (
	"net/http"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

func TestWhereRequestsGo(t *testing.T) {
	noCredentials(t)
	yes, no := true, false
	for want, set := range map[string]s3store.Settings{
		"https://bucket.s3.us-east-1.amazonaws.com/a%20b":         {},
		"https://bucket.s3.eu-west-1.amazonaws.com/a%20b":         {Region: "eu-west-1"},
		"https://bucket.s3.cn-north-1.amazonaws.com.cn/a%20b":     {Region: "cn-north-1"},
		"https://s3.eu-west-2.amazonaws.com/bucket/a%20b":         {Region: "eu-west-2", PathStyle: &yes},
		"https://s3.us-east-1.amazonaws.com/with.dots/a%20b":      {Bucket: "with.dots"},
		"https://minio.example:9000/bucket/a%20b":                 {Endpoint: "minio.example:9000"},
		"http://minio.example/bucket/p/q/a%20b":                   {Endpoint: "http://minio.example/", Prefix: "/p/q/"},
		"https://bucket.objects.example/a%20b":                    {Endpoint: "https://objects.example", PathStyle: &no},
		"https://bucket.storage.googleapis.com/a%20b":             {Endpoint: "storage.googleapis.com"},
		"https://[::1]:9000/bucket/a%20b":                         {Endpoint: "https://[::1]:9000"},
		"https://bucket.s3.eu-central-1.amazonaws.com/x/a%20b":    {Endpoint: "s3.eu-central-1.amazonaws.com", Prefix: "x"},
		"https://account.r2.cloudflarestorage.com/bucket/a%20b":   {Endpoint: "https://account.r2.cloudflarestorage.com", Region: "auto"},
		"https://bucket.s3.us-gov-west-1.amazonaws.com/gov/a%20b": {Region: "us-gov-west-1", Prefix: "gov"},
	} {
		if set.Bucket == "" {
			set.Bucket = "bucket"
		}
		var got string
		set.AccessKey, set.SecretKey = "a", "s"
		set.Transport = answering(func(r *http.Request) (int, string) {
			got = r.URL.String()
			if r.Host != r.URL.Host {
				t.Errorf("Host is %q in a request to %s", r.Host, got)
			}
			return http.StatusOK, ""
		})
		if _, err := open(t, set).Stat(t.Context(), "a b", muxcore.Conditions{}); err != nil || got != want {
			t.Errorf("%+v is asked at %s (%v), want %s", set, got, err, want)
		}
	}
}
