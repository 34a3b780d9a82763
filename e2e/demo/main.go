// Command demo shows Vicinity at work: six nodes in three zones, a proxy on each, and a Service with a preference for
// the client's zone. It measures the targets of connections while a zone loses its pods and gets them back; the load of
// each pod, without and with a bound, when most pods are in one zone; the targets while a zone is being evacuated; the
// connections when a node fails; and the bytes between zones without and with the preference.
//
// The demo runs in its own network namespaces, which end with it. The exit status is 0 only if every connection went to
// an expected pod and `proxy explain` agrees; it is 130 after Ctrl-C.
//
// To add an act, write it like those in evacuate.go or nodefailure.go, and add it to play.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // 128 + SIGINT, as a shell reports it
)

func main() {
	os.Exit(run())
}

func run() int {
	proxy := flag.String("proxy", "bin/proxy", "`FILE` of the proxy to run, as built by make build")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	page := newPage(os.Stdout)
	err := check(*proxy)
	if err == nil {
		err = show(ctx, page, *proxy)
	}
	return conclude(ctx, page, err)
}

// errLeftovers means that the demo could not remove everything.
var errLeftovers = errors.New("failed to remove everything of the demo")

// conclude prints the reason of a failure, and returns the exit status.
func conclude(ctx context.Context, page *page, err error) int {
	switch {
	case errors.Is(err, errLeftovers):
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return exitFailed
	case ctx.Err() != nil:
		page.print("\nInterrupted. The proxies, namespaces and files of the demo are removed.")
		return exitInterrupted
	case errors.Is(err, errUnexpected):
		return exitFailed // the last page has the mistakes
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// check returns an error if a requirement of the demo is missing.
func check(proxy string) error {
	if os.Geteuid() != 0 {
		return errors.New("the demo creates network namespaces and needs root: run it with sudo")
	}
	file, err := os.Stat(proxy)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (file.IsDir() || file.Mode()&0o111 == 0) {
		return fmt.Errorf("there is no program %s: run `make build` first, or name another with --proxy", proxy)
	}
	return err
}

// show creates the networks and files, plays all acts, and removes everything in any case.
func show(ctx context.Context, page *page, proxy string) (err error) {
	program, err := filepath.Abs(proxy)
	if err != nil {
		return fmt.Errorf("find %s: %w", proxy, err)
	}
	folder, err := os.MkdirTemp("", "vicinity-demo-")
	if err != nil {
		return fmt.Errorf("create folder for the manifests: %w", err)
	}
	defer func() { err = errors.Join(err, leftoversError(os.RemoveAll(folder))) }()
	s, err := newSetup(program, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leftoversError(s.close())) }()
	return play(ctx, page, s)
}

func leftoversError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errLeftovers, err)
}
