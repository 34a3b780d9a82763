// Package image assembles container images from static binaries: no registry, no base image, no container tool.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is an image of one layer that holds one program, as `FROM scratch`, COPY and ENTRYPOINT make it, and what that
// runs.
type Image struct {
	// Name is what pods call it, such as "vicinity-proxy:lab".
	Name string
	// Program is the file on this machine, a static one. In the image it is in Folder, by default the root, under its own
	// name, and is the entry point.
	Program string
	Folder  string
	// Files are more files: where they are in the image, and where on this machine.
	Files map[string]string
	// User is who runs it, as USER writes it. Empty is root.
	User string
}

// Write writes images into one file, in the format of `docker save`.
func Write(file string, images ...Image) error {
	all := map[name.Tag]v1.Image{}
	for _, image := range images {
		tag, err := name.NewTag(image.Name)
		if err != nil {
			return fmt.Errorf("naming image %s: %w", image.Name, err)
		}
		if all[tag], err = image.assemble(); err != nil {
			return fmt.Errorf("assembling image %s: %w", image.Name, err)
		}
	}
	if err := tarball.MultiWriteToFile(file, all); err != nil {
		return fmt.Errorf("writing images to %s: %w", file, err)
	}
	return nil
}

func (i Image) assemble() (v1.Image, error) {
	content, err := i.layer()
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	// Compressing takes longer than copying ever will: images go from this machine to this machine.
	layer, err := tarball.LayerFromOpener(open,
		tarball.WithCompression(compression.None), tarball.WithMediaType(types.DockerUncompressedLayer))
	if err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("adding a layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{i.entrypoint()}, User: i.User}
	return mutate.ConfigFile(image, config)
}

func (i Image) entrypoint() string { return path.Join("/", i.Folder, path.Base(i.Program)) }

func (i Image) layer() ([]byte, error) {
	if err := checkStatic(i.Program); err != nil {
		return nil, err
	}
	files := maps.Clone(i.Files)
	if files == nil {
		files = map[string]string{}
	}
	files[i.entrypoint()] = i.Program
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	for _, target := range slices.Sorted(maps.Keys(files)) {
		if err := add(archive, target, files[target]); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	return content.Bytes(), nil
}

// add writes a file into an archive. It has no time and no owner but root: the same files make the same image.
func add(archive *tar.Writer, target, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("reading a file for an image: %w", err)
	}
	header := &tar.Header{Name: target[1:], Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("writing a layer: %w", err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("writing a layer: %w", err)
	}
	return nil
}
