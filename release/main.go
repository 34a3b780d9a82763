// Command release builds the files of a release from a clean checkout and with Go alone: programs, images, manifests
// with the version, SBOMs, and checksums. The builds are reproducible: the same commit gives the same bytes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/mod/semver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

const help = `Builds the files of a release from a clean checkout: make release VERSION=v0.1.0

Programs for Linux on amd64 and arm64, and the webhook, which checks files, also for macOS and Windows; images of both
programs; an installation manifest for each installation method; an SBOM of each program (SPDX); and checksums of all
files. The builds are reproducible.

`

// release is the release that is being built.
type release struct {
	version  string
	registry string // for the images
	commit   string
	created  time.Time // of the commit
	folder   string    // of the output
	kustomize,
	make string // programs
	progress io.Writer
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var r release
	var folder string
	flags := pflag.NewFlagSet("release", pflag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "the `VERSION`, such as v0.1.0 or v0.1.0-rc.1")
	flags.StringVar(&r.registry, "registry", "ghcr.io/vicinity-proxy", "the `REGISTRY` of the images")
	flags.StringVar(&folder, "output", "dist", "the output `FOLDER`; an existing one is replaced")
	flags.StringVar(&r.kustomize, "kustomize", "bin/kustomize", "the `PROGRAM` kustomize")
	flags.Usage = func() { fmt.Fprint(out, help, flags.FlagUsages()) }
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := checkVersion(r.version); err != nil {
		return err
	}
	r.make, r.progress, r.folder = "make", out, folder+".partial"
	var err error
	if r.commit, r.created, err = head(ctx); err != nil {
		return err
	}
	// The files are written to a temporary folder, so that an incomplete release is never mistaken for a complete one.
	if err := errors.Join(os.RemoveAll(r.folder), os.MkdirAll(r.folder, 0o755)); err != nil {
		return fmt.Errorf("create folder %s: %w", r.folder, err)
	}
	if err := r.buildAll(ctx); err != nil {
		return errors.Join(err, os.RemoveAll(r.folder))
	}
	if err := errors.Join(os.RemoveAll(folder), os.Rename(r.folder, folder)); err != nil {
		return fmt.Errorf("move the files to %s: %w", folder, err)
	}
	return printFiles(out, folder)
}

// checkVersion accepts v1.2.3, with an optional pre-release suffix.
func checkVersion(version string) error {
	core, _, _ := strings.Cut(version, "-")
	if !semver.IsValid(version) || semver.Build(version) != "" || strings.Count(core, ".") != 2 {
		return fmt.Errorf("--version %q: want a semantic version, as in make release VERSION=v0.1.0 or v0.1.0-rc.1", version)
	}
	return nil
}

// head returns the checked-out commit and its time. Uncommitted changes are an error, because the build could not be
// reproduced.
func head(ctx context.Context) (commit string, created time.Time, err error) {
	changes, err := output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return "", time.Time{}, fmt.Errorf("check for uncommitted changes: %w", err)
	}
	if changes != "" {
		return "", time.Time{}, fmt.Errorf("uncommitted changes; commit or stash them first:\n%s", changes)
	}
	text, err := output(ctx, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read the commit: %w", err)
	}
	commit, unix, _ := strings.Cut(text, " ")
	seconds, err := strconv.ParseInt(unix, 10, 64)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("parse the commit time: %w", err)
	}
	return commit, time.Unix(seconds, 0).UTC(), nil
}

// output returns the standard output of a program without the final line break. An error contains its standard error.
func output(ctx context.Context, program string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		var stderr []byte
		if exitErr, ok := errors.AsType[*exec.ExitError](err); ok {
			stderr = exitErr.Stderr
		}
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr)
	}
	return strings.TrimRight(string(text), "\n"), nil
}

// buildAll builds all files.
func (r release) buildAll(ctx context.Context) error {
	programs, err := r.buildPrograms(ctx)
	if err != nil {
		return err
	}
	if err := r.describePrograms(programs); err != nil {
		return err
	}
	if err := r.makeImages(programs); err != nil {
		return err
	}
	if err := r.renderManifests(ctx); err != nil {
		return err
	}
	if err := errors.Join(copyFile("LICENSE", r.path("LICENSE")), os.RemoveAll(r.path(buildFolder))); err != nil {
		return err
	}
	return writeChecksums(r.folder)
}

func (r release) path(name string) string { return filepath.Join(r.folder, name) }

func (r release) step(format string, args ...any) { fmt.Fprintf(r.progress, format+"\n", args...) }

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	if err := os.WriteFile(to, text, 0o644); err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	return nil
}
