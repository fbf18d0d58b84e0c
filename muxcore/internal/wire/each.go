package wire

import (
	"errors"
	"sync"
)

const atATime = 4

// Each calls f for each key, a few at a time. Errors come in the order of the keys.
func Each(keys []string, f func(key string) error) error {
	var wg sync.WaitGroup
	turns := make(chan struct{}, atATime)
	errs := make([]error, len(keys))
	for i, key := range keys {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			errs[i] = f(key)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
