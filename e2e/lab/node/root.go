package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// ownPrograms maps paths in a node to this repository's programs.
var ownPrograms = map[string]string{"/bin/mount": "mount", "/bin/umount": "mount"}

// file is a file of a node's root.
type file struct {
	content []byte
	mode    os.FileMode
}

// prepareRoot fills the node's root folder.
func (c Config) prepareRoot() error {
	files, err := c.files()
	if err != nil {
		return err
	}
	for path, file := range files {
		if err := writeFile(filepath.Join(c.Root, path), file); err != nil {
			return err
		}
	}
	for _, folder := range []string{"/tmp", "/run", "/root", "/opt", cniPrograms} {
		if err := os.MkdirAll(filepath.Join(c.Root, folder), 0o755); err != nil {
			return fmt.Errorf("create folder: %w", err)
		}
	}
	for path, program := range ownPrograms {
		if err := linkOrCopy(filepath.Join(c.OwnPrograms, program), filepath.Join(c.Root, path)); err != nil {
			return err
		}
	}
	return cloneImages(c.Images, filepath.Join(c.Root, containerdRoot))
}

// files returns the node's configuration and credentials.
func (c Config) files() (map[string]file, error) {
	kubelet, err := kubeletConfiguration(c.DNS)
	if err != nil {
		return nil, err
	}
	networks, err := cniNetworks(c.Pods...)
	if err != nil {
		return nil, err
	}
	pair, err := c.Authority.Server("system:node:"+c.Name, []string{c.Name}, serverAddrs(c))
	if err != nil {
		return nil, err
	}
	const public, secret = 0o644, 0o600
	files := map[string]file{
		"/etc/hosts":                 {[]byte("127.0.0.1 localhost\n::1 localhost\n"), public},
		"/etc/passwd":                {[]byte("root:x:0:0:root:/root:/bin/false\n"), public},
		"/etc/machine-id":            {[]byte(machineID(c.Name)), public},
		resolvConf:                   {[]byte("# Nodes use no DNS; pods use cluster DNS.\n"), public},
		cniConfig + "/pods.conflist": {[]byte(networks), public},
		containerdConfig:             {[]byte(ContainerdConfig(containerdRoot, "/run/containerd", containerdSocket, c.Pause)), public},
		kubeletConfig:                {[]byte(kubelet), public},
		authorityFile:                {c.Authority.Certificate(), public},
		kubeletCertFile:              {pair.Certificate, public},
		kubeletKeyFile:               {pair.Key, secret},
		kubeletKubeconfig:            {[]byte(c.Kubeconfig), secret},
	}
	for name, value := range machineSysctls {
		files[filepath.Join(sysctlFiles, name)] = file{[]byte(value + "\n"), public}
	}
	return files, nil
}

// machineID returns the node's machine ID, which systemd sets on real machines and kubelet reports: 32 hexadecimal
// digits, unique to the node.
func machineID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16]) + "\n"
}

func serverAddrs(c Config) []net.IP {
	var addrs []net.IP
	for _, addr := range c.Addrs {
		addrs = append(addrs, addr.AsSlice())
	}
	return addrs
}

func writeFile(path string, file file) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	if err := os.WriteFile(path, file.content, file.mode); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// linkOrCopy hard-links a file, or copies it to another file system.
func linkOrCopy(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	if err := os.Link(from, to); err == nil {
		return nil
	}
	return copyFile(from, to)
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	defer source.Close()
	status, err := source.Stat()
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, status.Mode().Perm())
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	_, err = target.ReadFrom(source)
	if err := errors.Join(err, target.Close()); err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return nil
}
