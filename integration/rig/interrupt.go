package rig

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// AtInterrupt has clean run should the program be interrupted or asked to end, which it then does. undo takes that back.
func AtInterrupt(clean func()) (undo func()) {
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			clean()
			os.Exit(1)
		case <-over:
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(signals)
		close(over)
	})
}
