package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// platform is an operating system and an architecture, as Go calls them.
type platform struct{ os, architecture string }

func (p platform) String() string { return p.os + "-" + p.architecture }

// nodePlatforms are the platforms of nodes. Images are built for these.
var nodePlatforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}}

// desktopPlatforms are the platforms on which users check files with the webhook's program.
var desktopPlatforms = []platform{{"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

const (
	proxy   = "proxy"
	webhook = "webhook"
)

// program is a built program.
type program struct {
	name     string // proxy or webhook
	platform platform
	// path is the path of the executable under its own name. file is the name that users download.
	path, file string
}

// buildFolder is the folder of the programs while the release is being built.
const buildFolder = "build"

// buildPrograms builds all programs, as `make build` does.
func (r release) buildPrograms(ctx context.Context) ([]program, error) {
	var all []program
	for _, target := range nodePlatforms {
		built, err := r.build(ctx, target, proxy, webhook)
		if err != nil {
			return nil, err
		}
		all = append(all, built...)
	}
	for _, target := range desktopPlatforms {
		built, err := r.build(ctx, target, webhook)
		if err != nil {
			return nil, err
		}
		all = append(all, built...)
	}
	return all, nil
}

func (r release) build(ctx context.Context, target platform, names ...string) ([]program, error) {
	r.step("building %v for %s", names, target)
	folder := r.path(filepath.Join(buildFolder, target.String()))
	cmd := exec.CommandContext(ctx, r.make, "--no-print-directory", "build",
		"BIN="+folder, "PROGRAMS="+strings.Join(names, " "), "VERSION="+r.version)
	cmd.Env = append(os.Environ(), "GOOS="+target.os, "GOARCH="+target.architecture, "GOFLAGS=", "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build for %s: %w\n%s", target, err, output)
	}
	var all []program
	for _, name := range names {
		suffix := ""
		if target.os == "windows" {
			suffix = ".exe"
		}
		built := program{
			name: name, platform: target, path: filepath.Join(folder, name),
			file: fmt.Sprintf("vicinity-%s-%s-%s%s", name, r.version, target, suffix),
		}
		if err := os.Link(built.path, r.path(built.file)); err != nil {
			return nil, fmt.Errorf("link program %s for %s: %w", name, target, err)
		}
		all = append(all, built)
	}
	return all, nil
}
