// Command programs copies what this repository builds for a node of kind into the node's root folder: the programs of
// Kubernetes, containerd and the CNI plugins, and the images that kubeadm needs, assembled from the same programs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "programs: %v\n", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// directory is a folder of a node, and the programs in it.
type directory struct {
	folder   string
	module   binaries.Module
	programs []string
}

var directories = []directory{
	{"usr/bin", binaries.Kubeadm, []string{"kubeadm"}},
	{"usr/bin", binaries.Kubernetes, []string{"kubelet", "kubectl"}},
	{"usr/local/bin", binaries.Containerd, []string{"containerd", "containerd-shim-runc-v2", "ctr"}},
	{"usr/local/sbin", binaries.Runc, []string{"runc"}},
	{"opt/cni/bin", binaries.CNI, []string{"host-local", "loopback", "ptp"}},
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("want two arguments: the root folder of a node, and the program of its pause container")
	}
	root, pause := args[0], args[1]
	programs, err := binaries.Build(ctx, os.Stdout, append(binaries.All, binaries.Kubeadm)...)
	if err != nil {
		return err
	}
	for _, directory := range directories {
		for _, program := range directory.programs {
			if err := install(programs.Path(directory.module, program), filepath.Join(root, directory.folder, program)); err != nil {
				return err
			}
		}
	}
	version, err := output(ctx, programs.Path(binaries.Kubeadm, "kubeadm"), "version", "--output", "short")
	if err != nil {
		return err
	}
	version = strings.TrimSpace(version)
	if err := os.MkdirAll(filepath.Join(root, "kind"), 0o755); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(root, "kind", "version"), []byte(version), 0o644); err != nil {
		return fmt.Errorf("write Kubernetes version: %w", err)
	}
	names, err := output(ctx, programs.Path(binaries.Kubeadm, "kubeadm"), "config", "images", "list", "--kubernetes-version", version)
	if err != nil {
		return err
	}
	return writeImages(root, pause, strings.Fields(names), programs)
}

// writeImages writes two archives: the images for every node, and the additional ones for the control plane.
func writeImages(root, pause string, names []string, programs binaries.Programs) error {
	var nodeImages, controlPlane []image.Image
	for _, name := range names {
		base, _, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
		img := image.Image{Name: name, Folder: "/usr/local/bin"}
		switch base {
		case "pause":
			img.Program, img.User, img.Folder = pause, "65535:65535", ""
			nodeImages = append(nodeImages, img)
		case "coredns":
			img.Program, img.Folder = programs.Path(binaries.CoreDNS, base), ""
			nodeImages = append(nodeImages, img)
		case "kube-proxy":
			tools, err := kubeProxyTools()
			if err != nil {
				return err
			}
			img.Program, img.Files = programs.Path(binaries.Kubernetes, base), tools
			nodeImages = append(nodeImages, img)
		case "etcd":
			img.Program = programs.Path(binaries.Etcd, base)
			controlPlane = append(controlPlane, img)
		default:
			img.Program = programs.Path(binaries.Kubernetes, base)
			controlPlane = append(controlPlane, img)
		}
	}
	for file, images := range map[string][]image.Image{"every.tar": nodeImages, "control-plane.tar": controlPlane} {
		if err := image.Write(filepath.Join(root, "kind", file), images...); err != nil {
			return err
		}
	}
	return nil
}

// kubeProxyTools returns the programs that kube-proxy calls: nft, and iptables to remove its old rules. This kernel may
// lack the legacy iptables, so the nftables variant is used.
func kubeProxyTools() (map[string]string, error) {
	files, err := image.Tools("nft", "conntrack", "iptables-nft")
	if err != nil {
		return nil, err
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, name := range []string{family, family + "-save", family + "-restore"} {
			files["/bin/"+name] = files["/bin/iptables-nft"] // one program that behaves according to its name
		}
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return nil, fmt.Errorf("find iptables extensions: %w", err)
	}
	for _, extension := range extensions {
		files[extension] = extension
	}
	return files, nil
}

func install(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("install program: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	return nil
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}
	return string(output), nil
}
