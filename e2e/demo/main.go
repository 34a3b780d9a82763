// Command demo shows Vicinity at work: six nodes in three zones, a proxy on each, and a Service whose owner wants
// connections to stay in their zone. It measures where they go while a zone loses its pods and gets them back, what
// each pod gets where most of them are in one zone, without and with a bound, where they go while a zone is being
// evacuated, what becomes of them when a node vanishes, and how many bytes cross zones before the owner asks for that and
// after.
//
// All of it lives in network namespaces of its own, which end with it. The exit status is 0 only if every connection
// went where the Service's owner asked and `proxy explain` says the same; 130 after Ctrl-C.
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
	exitWrong       = 1
	exitUsage       = 2
	exitInterrupted = 130 // 128 + SIGINT, as a shell reports it
)

func main() {
	os.Exit(run())
}

func run() int {
	proxy := flag.String("proxy", "bin/proxy", "`FILE` of the proxy to show, as make build makes it")
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

// errLeftovers means that the demo could not take everything down.
var errLeftovers = errors.New("something of the demo is left over")

// conclude says how it ended.
func conclude(ctx context.Context, page *page, err error) int {
	switch {
	case errors.Is(err, errLeftovers):
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return exitWrong
	case ctx.Err() != nil:
		page.print("\nInterrupted. The proxies, namespaces and files of the demo are gone.")
		return exitInterrupted
	case errors.Is(err, errWrong):
		return exitWrong // the last page has said what
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return exitWrong
	}
	return exitOK
}

// check says what is missing before anything is built.
func check(proxy string) error {
	if os.Geteuid() != 0 {
		return errors.New("the demo makes network namespaces and needs root: run it with sudo")
	}
	file, err := os.Stat(proxy)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (file.IsDir() || file.Mode()&0o111 == 0) {
		return fmt.Errorf("there is no program %s: run `make build` first, or name another with --proxy", proxy)
	}
	return err
}

// show builds the stage, plays all acts, and takes the stage down again, however it ends.
func show(ctx context.Context, page *page, proxy string) (err error) {
	program, err := filepath.Abs(proxy)
	if err != nil {
		return fmt.Errorf("finding %s: %w", proxy, err)
	}
	folder, err := os.MkdirTemp("", "vicinity-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the manifests: %w", err)
	}
	defer func() { err = errors.Join(err, leftoversError(os.RemoveAll(folder))) }()
	stage, err := newStage(program, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leftoversError(stage.close())) }()
	return play(ctx, page, stage)
}

func leftoversError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errLeftovers, err)
}
