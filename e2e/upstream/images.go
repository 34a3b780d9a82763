package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

// registry is the registry of Kubernetes' test images. The images here have the same names and are built on this
// machine: from the programs of Kubernetes' own agnhost, and from this machine's tools instead of those of the
// distribution that the real images are based on.
const registry = "registry.k8s.io/e2e-test-images/"

// tools are the programs that specs run in their pods in addition to agnhost. The script install provides those that
// not every machine has.
var tools = []string{
	"awk", "bash", "cat", "conntrack", "curl", "cut", "date", "dig", "echo", "env", "expr", "false", "getent", "grep", "head",
	"hostname", "id", "ip", "ls", "mkdir", "nc", "nslookup", "ping", "printf", "rm", "sed", "seq", "sh", "sleep", "sort", "ss",
	"tail", "tee", "test", "timeout", "touch", "tr", "true", "uname", "wc", "wget", "xargs",
}

// images returns the images that the specs of Kubernetes v1.37 use (test/utils/image/manifest.go). It first writes some
// of their files into a folder.
func images(ctx context.Context, programs binaries.Programs, folder string) ([]image.Image, error) {
	files, err := image.Tools(tools...)
	if err != nil {
		return nil, fmt.Errorf("%w: e2e/upstream/install installs them", err)
	}
	files["/coredns"] = programs.Path(binaries.CoreDNS, "coredns")
	files["/etc/nsswitch.conf"] = "/etc/nsswitch.conf"
	porter, err := certificates(ctx)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, porter)
	pulled, err := registryOf(folder, image.Image{
		Name: "pause:testing", Program: programs.Path(binaries.Upstream, "agnhost"), Arguments: []string{"pause"},
	})
	if err != nil {
		return nil, err
	}
	maps.Copy(files, pulled)
	for _, folder := range []string{"/tmp", "/uploads", "/root"} {
		files[folder+"/.keep"] = "/dev/null" // an empty file
	}
	return []image.Image{{
		Name: registry + "agnhost:2.66.1",
		OtherNames: []string{
			registry + "busybox:1.37.0-2", registry + "glibc-dns-testing:2.1.1", registry + "nginx:1.27.0-2",
			"registry.k8s.io/build-image/distroless-iptables:v0.9.7", "registry.k8s.io/pause:3.10.2",
		},
		Program: programs.Path(binaries.Upstream, "agnhost"), Arguments: []string{"pause"}, Files: files,
	}, {
		Name:    registry + "regression-issue-74839:1.5",
		Program: programs.Path(binaries.Upstream, "regression-issue-74839"),
	}}, nil
}

// registryOf returns the files from which agnhost's fake registry serves an image, at the paths in agnhost's own image.
func registryOf(folder string, served image.Image) (map[string]string, error) {
	if err := image.WriteRegistry(folder, served); err != nil {
		return nil, err
	}
	files := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		files["/var/registry/"+filepath.ToSlash(relative)] = path
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the files of the registry: %w", err)
	}
	return files, nil
}

// certificates returns the files with which agnhost serves HTTPS, at the paths in its image.
func certificates(ctx context.Context) (map[string]string, error) {
	download := exec.CommandContext(ctx, "go", "-C", "e2e/lab/build/upstream", "mod", "download", "-json", "k8s.io/kubernetes")
	output, err := download.Output()
	if err != nil {
		return nil, fmt.Errorf("find the sources of agnhost: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return nil, fmt.Errorf("find the sources of agnhost: %w", err)
	}
	porter := filepath.Join(module.Dir, "test/images/agnhost/porter")
	return map[string]string{
		"/localhost.crt": filepath.Join(porter, "localhost.crt"),
		"/localhost.key": filepath.Join(porter, "localhost.key"),
	}, nil
}
