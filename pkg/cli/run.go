package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// The exit statuses. Scripts and service managers rely on them.
const (
	OK      = 0
	Failure = 1 // the command line is valid, but the command failed
	Usage   = 2 // the command line is invalid; a retry cannot help
)

// UsageError is an error in the command line.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns Err, which may join several errors.
func (e UsageError) Unwrap() error { return e.Err }

// ExitError is an exit status whose cause was already printed.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Main runs the command line of this process and exits.
func Main(ctx context.Context, root *cobra.Command) {
	os.Exit(Run(ctx, root, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// SignalContext returns a context that the first SIGTERM or interrupt cancels, for commands with cleanup work. A second
// signal ends the process at once, as the first one does in all other commands.
func SignalContext(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx
}

// Run runs one command line and returns the exit status.
func Run(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	out, errOut := newEscapeWriter(stdout), newEscapeWriter(stderr)
	defer out.flush()
	defer errOut.flush()
	root.SetOut(out)
	root.SetErr(errOut)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return OK
	}
	if status, ok := errors.AsType[ExitError](err); ok {
		return int(status)
	}
	if usageErr, ok := errors.AsType[UsageError](err); ok {
		printUsage(errOut, command, usageErr)
		return Usage
	}
	PrintError(errOut, root.Name(), err)
	return Failure
}

// PrintError prints why a program failed, on one line, so that a log collector records one message. Joined errors would
// otherwise span several lines.
func PrintError(stderr io.Writer, program string, err error) {
	sanitize.Fprintf(stderr, "%s: %s\n", program, strings.ReplaceAll(err.Error(), "\n", "; "))
}

// printUsage prints each error on its own line, then the usage of the command.
func printUsage(stderr io.Writer, command *cobra.Command, usageErr UsageError) {
	for _, err := range splitErrors(usageErr.Err) {
		PrintError(stderr, command.Root().Name(), err)
	}
	sanitize.Fprintf(stderr, "usage: %s\nSee '%s --help'.\n", command.UseLine(), command.CommandPath())
}

// splitErrors returns the errors that errors.Join joined, or else the single error.
func splitErrors(err error) []error {
	joined, isJoined := err.(interface{ Unwrap() []error })
	if !isJoined || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	var all []error
	for _, child := range joined.Unwrap() {
		all = append(all, splitErrors(child)...)
	}
	return all
}

// RunAll runs all tasks, each in a goroutine, until all have ended. The first error cancels the other tasks and is
// returned.
func RunAll(ctx context.Context, tasks ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, task := range tasks {
		group.Go(func() error { return task(ctx) })
	}
	return group.Wait()
}
