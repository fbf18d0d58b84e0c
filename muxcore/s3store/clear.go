package s3store

import (
	"context"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	clearTime  = 10 * time.Second
	clearTries = 3
	clearPause = time.Second
)

// clear sends, in the background, what takes something of ours back: nothing of it is to be left, and nobody is to wait for that. A
// service that is down is asked again. So is one that may yet do what is to be taken back, as its answer is missing: late.
func (s *Store) clear(ctx context.Context, c call, late bool) {
	ctx = context.WithoutCancel(ctx)
	s.work.Go(func() {
		closing := s.closing
		for tries := 1; ; tries++ {
			once, cancel := context.WithTimeout(ctx, clearTime)
			_, err := s.finish(once, &c)
			cancel()
			down := muxcore.Classify(ctx, err).Counts() && codeOf(err) != noSuchUpload
			if !down && (!late || tries > 1) || tries == clearTries {
				return
			}
			select {
			case <-time.After(clearPause << tries):
			case <-closing:
				if tries > 1 || down {
					return
				}
				closing = nil
			}
		}
	})
}
