// Command proxy is Vicinity's service proxy. It runs once on every node and sends each connection to a Service to the nearest
// endpoint that the Service's owner allows.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The first signal asks for an orderly end; a second one, of somebody impatient, ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
