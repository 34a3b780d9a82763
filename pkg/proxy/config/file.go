package config

import (
	"bytes"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
)

// APIVersion is the version of kube-proxy's configuration that is read.
const APIVersion = "kubeproxy.config.k8s.io/v1alpha1"

// kind is the one document's.
const kind = "KubeProxyConfiguration"

// File is a configuration file that has been read.
type File struct {
	// Path is where it is.
	Path string
	// Configuration is what it says, without defaults. Whatever its mode, what has meaning here is in the section
	// nftables.
	Configuration *Configuration
	// Notes are a line for each setting that has no meaning here: its field, and why.
	Notes []string

	content []byte
}

// Read reads a file strictly, and checks all that has meaning here. An error names the file and every field that is
// wrong.
func Read(path string) (*File, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	configuration, notes, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	return &File{Path: path, Configuration: configuration, Notes: notes, content: bytes.Clone(content)}, nil
}

// Watched is the file for a watch that ends when it says something else that can be used.
func (f *File) Watched() filewatch.File {
	return filewatch.File{Path: f.Path, Content: f.content, Check: func() error {
		_, err := Read(f.Path)
		return err
	}}
}

// parse reads the text of a file, and returns what it says and the notes about it.
func parse(text []byte) (*Configuration, []string, error) {
	document, err := singleDocument(text)
	if err != nil {
		return nil, nil, err
	}
	var c Configuration
	unread, err := decode(document, &c)
	if err != nil {
		return nil, nil, err
	}
	all := append(unread, notes(&c)...)
	all = append(all, unusedDetectors(&c)...)
	all = append(all, takeModesSection(&c)...)
	_, fieldErrors := Resolve(c.DeepCopy())
	return &c, all, (&checker{fieldErrors}).err()
}
