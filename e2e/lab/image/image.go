// Package image assembles container images from static binaries: no registry, no base image, no container tool.
package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"time"

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
	// OtherNames are more names of the same image.
	OtherNames []string
	// Program is the file on this machine, a static one. In the image it is in Folder, by default the root, under its own
	// name, and is the entry point.
	Program string
	Folder  string
	// Arguments are the entry point's where a pod names none, as CMD writes them.
	Arguments []string
	// Files are more files: where they are in the image, and where on this machine.
	Files map[string]string
	// User is who runs it, as USER writes it. Empty is root.
	User string

	// Architecture is the program's, as Go calls it. Empty: this machine's.
	Architecture string
	// Created is when the image was made, and Labels are what it says of itself. Both may be empty.
	Created time.Time
	Labels  map[string]string
}

// Proxy is the image that Dockerfile.proxy makes, of a program that is there already.
func Proxy(name, program string) Image { return Image{Name: name, Program: program, User: "0:0"} }

// Webhook is the image that Dockerfile.webhook makes, likewise.
func Webhook(name, program string) Image {
	return Image{Name: name, Program: program, User: "65532:65532"}
}

// Write writes images into one file, in the format of `docker save`.
func Write(file string, images ...Image) error {
	all := map[name.Tag]v1.Image{}
	for _, image := range images {
		// Compressing takes longer than copying ever will: images go from this machine to this machine.
		assembled, err := image.assemble(compression.None, types.DockerUncompressedLayer)
		if err != nil {
			return fmt.Errorf("assembling image %s: %w", image.Name, err)
		}
		for _, text := range append([]string{image.Name}, image.OtherNames...) {
			tag, err := name.NewTag(text)
			if err != nil {
				return fmt.Errorf("naming image %s: %w", text, err)
			}
			all[tag] = assembled
		}
	}
	if err := tarball.MultiWriteToFile(file, all); err != nil {
		return fmt.Errorf("writing images to %s: %w", file, err)
	}
	return nil
}

func (i Image) assemble(compressed compression.Compression, media types.MediaType) (v1.Image, error) {
	content, err := i.layer()
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompression(compressed), tarball.WithMediaType(media))
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
	config.OS, config.Architecture = "linux", cmp.Or(i.Architecture, runtime.GOARCH)
	config.Created = v1.Time{Time: i.Created}
	config.Config = v1.Config{Entrypoint: []string{i.entrypoint()}, Cmd: i.Arguments, User: i.User, Labels: i.Labels}
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
		if err := addFile(archive, target[1:], files[target], 0o755); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	return content.Bytes(), nil
}

// addFile writes a file into an archive. It has no time and no owner but root: the same files make the same image.
func addFile(archive *tar.Writer, target, source string, mode int64) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("reading a file for an image: %w", err)
	}
	header := &tar.Header{Name: target, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("writing %s into an archive: %w", target, err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("writing %s into an archive: %w", target, err)
	}
	return nil
}
