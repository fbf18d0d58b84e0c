package s3store

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	firstRegion = "us-east-1"
	minPartSize = 5 << 20
	maxRegion   = 63 // bytes of the name of a host between two dots
)

// place is where the bucket is.
type place struct {
	scheme string
	host   string // "" is Amazon's of the region
	bucket string
	inPath bool
}

// region is what requests are signed for. It is safe for concurrent use.
type region struct {
	fixed bool

	mu   sync.Mutex
	name string
}

func (r *region) get() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.name
}

// learn takes the region that the service named, and tells whether it is news to whoever has signed for used.
func (r *region) learn(name, used string) bool {
	if r.fixed || !isRegion(name) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.name = name
	return name != used
}

// locate reads what says where the bucket is.
func (s *Store) locate(set *Settings) error {
	if set.Bucket == "" {
		return errors.New("bucket: missing")
	}
	if err := s3utils.CheckValidBucketName(set.Bucket); err != nil {
		return fmt.Errorf("bucket: %q is no name of a bucket: %w", set.Bucket, err)
	}
	s.place = place{scheme: "https", bucket: set.Bucket}
	named := url.URL{Scheme: "https", Host: "s3.amazonaws.com"}
	if set.Endpoint != "" {
		u, err := parseEndpoint(set.Endpoint)
		if err != nil {
			return err
		}
		named = *u
		s.place.scheme, s.place.host = u.Scheme, u.Host
	}
	s.place.inPath = !s3utils.IsVirtualHostSupported(named, set.Bucket)
	if set.PathStyle != nil {
		s.place.inPath = *set.PathStyle
	}
	s.encoding = "identity"
	if s3utils.IsGoogleEndpoint(named) {
		s.encoding = "gzip" // it would decompress what is stored compressed
	}
	s.region.name = cmp.Or(set.Region, s3utils.GetRegionFromURL(named), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	s.region.fixed = s.region.name != ""
	s.region.name = cmp.Or(s.region.name, firstRegion)
	if !isRegion(s.region.name) {
		return fmt.Errorf("region: %q is no region", s.region.name)
	}
	return nil
}

// isRegion tells whether name can be part of a host's name and of a signature.
func isRegion(name string) bool {
	return name != "" && len(name) <= maxRegion && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// parseEndpoint reads Endpoint. No error quotes one that may hold a password.
func parseEndpoint(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	switch {
	case strings.Contains(text, "@"):
		return nil, errors.New("endpoint: must hold no credentials")
	case err != nil:
		return nil, fmt.Errorf("endpoint: %q is not a URL", text)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("endpoint: must be http or https, got %q", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("endpoint: has no host")
	case !wire.IsPort(u.Port()):
		return nil, fmt.Errorf("endpoint: %s is no port", u.Port())
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("endpoint: must be a host alone, without path and query, got %q", text)
	}
	return u, nil
}

// limit reads what bounds keys and parts.
func (s *Store) limit(set *Settings) error {
	var err error
	if s.prefix, err = wire.NewPrefix(set.Prefix); err != nil {
		return err
	}
	s.partSize, s.maxParts = cmp.Or(s.partSize, defaultPartSize), maxParts
	if s.partSize < minPartSize || s.partSize > maxPart {
		return fmt.Errorf("part_size: must be 5 MiB to 5 GiB, got %d bytes", s.partSize)
	}
	s.memory.most = cmp.Or(set.Memory, memoryParts*s.partSize)
	if s.memory.most < s.partSize {
		return fmt.Errorf("memory: must be that of a part at least, %d bytes, got %d", s.partSize, set.Memory)
	}
	return nil
}

// tlsConfig trusts the system's authorities, and those of AWS_CA_BUNDLE if it can be read.
func tlsConfig(scheme string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	file := os.Getenv("AWS_CA_BUNDLE")
	if file == "" || scheme != "https" {
		return config
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return config
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if pool.AppendCertsFromPEM(pem) {
		config.RootCAs = pool
	}
	return config
}

// hostIn is the host that serves a region.
func (p *place) hostIn(region string) string {
	switch {
	case p.host != "":
		return p.host
	case strings.HasPrefix(region, "cn-"):
		return "s3." + region + ".amazonaws.com.cn"
	}
	return "s3." + region + ".amazonaws.com"
}

// url is that of an object, by its key with the prefix, or of the bucket.
func (p *place) url(region, key string, query url.Values) *url.URL {
	host := p.hostIn(region)
	u := &url.URL{Scheme: p.scheme, Host: host, Path: "/" + key}
	if p.inPath {
		u.Path = "/" + p.bucket + "/" + key
	} else {
		u.Host = p.bucket + "." + host
	}
	u.RawPath = s3utils.EncodePath(u.Path)
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u
}
