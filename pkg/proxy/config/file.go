package config

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
	"github.com/vicinity-proxy/vicinity/pkg/manifest"
)

// APIVersion is the version of kube-proxy's configuration that is read.
const APIVersion = "kubeproxy.config.k8s.io/v1alpha1"

// kind is that of kube-proxy's document.
const kind = "KubeProxyConfiguration"

// File is a configuration file that has been read.
type File struct {
	// Path is where it is.
	Path string
	// Configuration is what it says, without defaults. Whatever its mode, what has meaning here is in the section
	// nftables.
	Configuration *Configuration
	// Notes are a line for each setting that has no meaning here, and each document of another program: its field or
	// kind, and why.
	Notes []string
	// Own are the settings of our own that the file has, by field.
	Own map[string]string

	content []byte
	own     Own
}

// Read reads a file strictly, and checks all that has meaning here. An error names the file and every field that is
// wrong. own are the settings that the document of our own may have.
func Read(path string, own Own) (*File, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	file := &File{Path: path, content: bytes.Clone(content), own: own}
	if err := file.parse(content); err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	return file, nil
}

// Watched is the file for a watch that ends when the file has other contents that can be used.
func (f *File) Watched() filewatch.File {
	return filewatch.File{Path: f.Path, Content: f.content, Check: func() error {
		_, err := Read(f.Path, f.own)
		return err
	}}
}

// parse reads the text of a file.
func (f *File) parse(text []byte) error {
	found, err := readDocuments(text)
	if err != nil {
		return err
	}
	var errs [2]error
	f.Configuration = &Configuration{}
	if found.kubeProxys != nil {
		f.Configuration, f.Notes, errs[0] = kubeProxys(found.kubeProxys, f.own)
	}
	for i := range found.passedOver {
		f.Notes = append(f.Notes, found.passedOver[i].Type.Kind+": "+notRead(&found.passedOver[i]))
	}
	if found.own != nil {
		if f.Own, errs[1] = f.own.decode(found.own); errs[1] != nil {
			errs[1] = fmt.Errorf("document of kind %s: %w", OwnKind, errs[1])
		}
	}
	return errors.Join(errs[:]...)
}

// kubeProxys reads kube-proxy's document, and returns what it says and the notes about it.
func kubeProxys(document *manifest.Part, own Own) (*Configuration, []string, error) {
	var c Configuration
	unread, err := decode(document, &c, own)
	if err != nil {
		return nil, nil, err
	}
	all := append(unread, notes(&c)...)
	all = append(all, unusedDetectors(&c)...)
	all = append(all, takeModesSection(&c)...)
	_, fieldErrors := Resolve(c.DeepCopy())
	return &c, all, (&checker{fieldErrors}).err()
}
