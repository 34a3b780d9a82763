package image

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/node"
	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

const (
	startTimeout = time.Minute
	stopTimeout  = 10 * time.Second
	pollInterval = 20 * time.Millisecond
)

// Store runs a containerd for as long as it takes to import images.
type Store struct {
	// Programs has the module Containerd.
	Programs binaries.Programs
	// Netns is a network namespace: containerd needs no network, and must not use the machine's.
	Netns process.NetworkNamespace
	// Dir is containerd's folder, on a file system that supports overlays. Logs is the folder for its log.
	Dir, Logs string
}

// root returns containerd's folder of images, which exists after Import.
func (s Store) root() string { return filepath.Join(s.Dir, "root") }

// Import imports the images of files that Write or `docker save` wrote, and returns the root folder of a containerd
// that has them. That containerd has exited when Import returns.
func (s Store) Import(ctx context.Context, files ...string) (root string, err error) {
	config, socket := filepath.Join(s.Dir, "config.toml"), filepath.Join(s.Dir, "containerd.sock")
	// This containerd starts no container, so the pause image may have any name.
	text := node.ContainerdConfig(s.root(), filepath.Join(s.Dir, "state"), socket, "none")
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return "", fmt.Errorf("create folder for images: %w", err)
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("configure containerd for images: %w", err)
	}
	program := s.Programs.Path(binaries.Containerd, "containerd")
	containerd, err := process.Start(s.Netns, s.Logs, "images", exec.Command(program, "--config", config))
	if err != nil {
		return "", err
	}
	err = s.load(ctx, containerd, socket, files)
	return s.root(), errors.Join(err, containerd.Stop(stopTimeout))
}

func (s Store) load(ctx context.Context, containerd *process.Process, socket string, files []string) error {
	if err := waitReady(ctx, containerd, socket); err != nil {
		return err
	}
	for _, file := range files {
		ctr := exec.CommandContext(ctx, s.Programs.Path(binaries.Containerd, "ctr"),
			"--address", socket, "--namespace", "k8s.io", "images", "import", file)
		if output, err := ctr.CombinedOutput(); err != nil {
			return fmt.Errorf("import the images of %s: %w\n%s", file, err, output)
		}
	}
	return nil
}

// waitReady waits until containerd accepts connections.
func waitReady(ctx context.Context, containerd *process.Process, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		connection, err := net.Dial("unix", socket)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-containerd.Done():
			return containerd.ExitError()
		case <-ctx.Done():
			return fmt.Errorf("containerd is not ready: %w; the end of %s:\n%s", err, containerd.Log, containerd.LastOutput())
		case <-time.After(pollInterval):
		}
	}
}
