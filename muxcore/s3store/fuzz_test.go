package s3store_test

import (
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

// Whatever a service answers, no store believes what cannot be.
func FuzzAHostileService(f *testing.F) {
	const (
		object = "HTTP/1.1 200 OK\nETag: \"a\"\nLast-Modified: Mon, 06 May 2024 07:08:10 GMT\nx-amz-meta-colour: =?UTF-8?Q?r=C3=B6t?=\nContent-Length: 10\n\n0123456789"
		list   = `HTTP/1.1 200 OK

<ListBucketResult><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType><NextContinuationToken>t</NextContinuationToken><Contents><Key>p/some/a%20key</Key><Size>5</Size></Contents><CommonPrefixes><Prefix>p/some/b/</Prefix></CommonPrefixes></ListBucketResult>`
		nothing = "HTTP/1.1 200 OK\n\n<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>"
		refusal = "HTTP/1.1 400 X\n\n<Error><Code>InvalidRegion</Code><Message>SECRETKEY</Message><Region>eu-north-1</Region></Error>"
		begun   = "HTTP/1.1 200 OK\n\n<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
	)
	cloudtest.Fuzz(f, []string{
		object, list, nothing, refusal, list + cloudtest.Between + nothing + cloudtest.Between + object, refusal + cloudtest.Between + object,
		"HTTP/1.1 206 OK\nETag: \"a\"\nContent-Range: bytes 3-6/10\nContent-Length: 4\n\n3456",
		"HTTP/1.1 416 X\nContent-Range: bytes */2\nContent-Length: 0\n\n" + cloudtest.Between + object,
		"HTTP/1.1 404 X\nContent-Length: 0\n\n" + cloudtest.Between + "HTTP/1.1 301 X\nX-Amz-Bucket-Region: x y\nContent-Length: 0\n\n",
		"HTTP/1.1 200 OK\nETag: \"a\"\nx-amz-meta-storage-mux-type: =?utf-8?b?YQ0KYjog?=\nx-amz-meta-a: =?utf-8?q?=0D=0A?=\nContent-Length: 1\n\n0",
		"HTTP/1.1 200 OK\n\n" + strings.Repeat("<a>", 5000), "HTTP/1.1 200 OK\n\n<!DOCTYPE a [<!ENTITY b \"&c;&c;\">]><ListBucketResult>&b;</ListBucketResult>",
		"HTTP/1.1 200 OK\n\n<ListBucketResult><Contents><Key>p/some/key</Key><Size>" + strings.Repeat("9", 5000) + "</Size></Contents></ListBucketResult>",
		"HTTP/1.1 200 OK\n\n<ListBucketResult><Contents><Key>other</Key></Contents><Contents><Key>p/zzz</Key></Contents></ListBucketResult>",
		"HTTP/1.1 403 X\nX-Amz-Bucket-Region: " + strings.Repeat("e u", 5000) + "\nContent-Length: 0\n\n",
		begun + cloudtest.Between + object + cloudtest.Between + "HTTP/1.1 200 OK\n\n<Error><Code>InternalError</Code></Error>",
	}, func(tb testing.TB, h *cloudtest.Hostile) muxcore.Store {
		s, err := s3store.New(s3store.Settings{Bucket: "bucket", Endpoint: "http://s3.test", Prefix: "p", AccessKey: "ACCESSKEY", SecretKey: "SECRETKEY", Transport: h})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}, false, "SECRETKEY")
}
