package muxcore

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// A mirror's Put hung for ever, now and then, when one member refused the key: another had been woken for the last block,
// and the word that nobody is to commit it came before it had looked.
func TestAReaderIsToldThatABodyWasGivenUpHoweverItWasWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errNoTurn := errors.New("no turn")
		b := newBroadcast(CheckBody(strings.NewReader("x"), 1, Digests{}), NewSpool(SpoolSettings{}), 1, 1, func() error { return errNoTurn })
		defer b.close()
		b.run(t.Context())
		<-b.readers[0].wake // one token for both
		if body, err := io.ReadAll(b.readers[0]); err == nil {
			t.Errorf("the body of a Put that nobody may commit = %q and its end, want an error", body)
		}
	})
}
