// Command probe runs in the pods of the end-to-end suites. `probe serve` is a server that replies with its name and the
// client's address, and a client that connects on request. `probe sabotage` changes Vicinity's tables externally.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/vicinity-proxy/vicinity/e2e/probe/sabotage"
)

const usage = `usage:
  probe serve           serve on port 8080 (TCP and UDP), and accept commands over HTTP on port 8081
  probe sabotage ACTION change Vicinity's tables in this network namespace`

var errUsage = errors.New(usage)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "probe: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve(ctx, out)
	case len(args) == 2 && args[0] == "sabotage":
		return sabotage.Run(args[1], out)
	}
	return errUsage
}
