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
	// IgnoredSettings are a line for each setting that has no meaning here, and each document of another program: its field or
	// kind, and why.
	IgnoredSettings []string
	// VicinityFields are the settings of our own that the file has, by field.
	VicinityFields map[string]string

	content        []byte
	vicinityConfig VicinityConfig
}

// Read reads a file strictly, and checks all that has meaning here. An error names the file and every field that is
// wrong. own are the settings that the document of our own may have.
func Read(path string, own VicinityConfig) (*File, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	file := &File{Path: path, content: bytes.Clone(content), vicinityConfig: own}
	if err := file.parse(content); err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	return file, nil
}

// Watched is the file for a watch that ends when the file has other contents that can be used.
func (f *File) Watched() filewatch.File {
	return filewatch.File{Path: f.Path, Content: f.content, Check: func() error {
		_, err := Read(f.Path, f.vicinityConfig)
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
		f.Configuration, f.IgnoredSettings, errs[0] = kubeProxys(found.kubeProxys, f.vicinityConfig)
	}
	for i := range found.passedOver {
		f.IgnoredSettings = append(f.IgnoredSettings, found.passedOver[i].Type.Kind+": "+notRead(&found.passedOver[i]))
	}
	if found.own != nil {
		if f.VicinityFields, errs[1] = f.vicinityConfig.decode(found.own); errs[1] != nil {
			errs[1] = fmt.Errorf("document of kind %s: %w", OwnKind, errs[1])
		}
	}
	return errors.Join(errs[:]...)
}

// kubeProxys reads kube-proxy's document, and returns what it says and the notes about it.
func kubeProxys(document *manifest.Part, own VicinityConfig) (*Configuration, []string, error) {
	var c Configuration
	unread, err := decode(document, &c, own)
	if err != nil {
		return nil, nil, err
	}
	all := append(unread, ignoredMessages(&c)...)
	all = append(all, unusedDetectors(&c)...)
	all = append(all, applyModeSection(&c)...)
	_, fieldErrors := Resolve(c.DeepCopy())
	return &c, all, (&checker{fieldErrors}).err()
}
