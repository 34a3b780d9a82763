// Command pause is the first process of every pod: it keeps the pod's namespaces, and waits for a signal to end.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	done := make(chan os.Signal, 1)
	signal.Notify(done, os.Interrupt, syscall.SIGTERM)
	<-done
}
