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

// Image is an image of one layer with one program, like one built with FROM scratch, COPY and ENTRYPOINT.
type Image struct {
	// Name is the name that pods use, such as "vicinity-proxy:lab".
	Name string
	// OtherNames are more names of the same image.
	OtherNames []string
	// Program is a static program on this machine. In the image it has the same name, is in Folder, which defaults to the
	// root, and is the entry point.
	Program string
	Folder  string
	// Arguments are the entry point's arguments if a pod specifies none, like CMD.
	Arguments []string
	// Files are more files: by path in the image, with the path on this machine.
	Files map[string]string
	// User is the user that runs the program, like USER. Empty means root.
	User string

	// Architecture is the program's GOARCH. It defaults to this machine's.
	Architecture string
	// Created is the image's creation time, and Labels are its labels. Both may be empty.
	Created time.Time
	Labels  map[string]string
}

// Proxy returns the image that Dockerfile.proxy builds, for an existing program.
func Proxy(name, program string) Image { return Image{Name: name, Program: program, User: "0:0"} }

// Webhook returns the image that Dockerfile.webhook builds, for an existing program.
func Webhook(name, program string) Image {
	return Image{Name: name, Program: program, User: "65532:65532"}
}

// Write writes images into one file, in the format of `docker save`.
func Write(file string, images ...Image) error {
	all := map[name.Tag]v1.Image{}
	for _, image := range images {
		// Images are only copied within this machine, so compressing would take longer than copying.
		assembled, err := image.assemble(compression.None, types.DockerUncompressedLayer)
		if err != nil {
			return fmt.Errorf("assemble image %s: %w", image.Name, err)
		}
		for _, text := range append([]string{image.Name}, image.OtherNames...) {
			tag, err := name.NewTag(text)
			if err != nil {
				return fmt.Errorf("parse name of image %s: %w", text, err)
			}
			all[tag] = assembled
		}
	}
	if err := tarball.MultiWriteToFile(file, all); err != nil {
		return fmt.Errorf("write images to %s: %w", file, err)
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
		return nil, fmt.Errorf("create layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("add layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
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
		return nil, fmt.Errorf("write layer: %w", err)
	}
	return content.Bytes(), nil
}

// addFile writes a file into an archive, without a time and with root as its owner, so that the same files result in
// the same image.
func addFile(archive *tar.Writer, target, source string, mode int64) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("read file for image: %w", err)
	}
	header := &tar.Header{Name: target, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s into an archive: %w", target, err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("write %s into an archive: %w", target, err)
	}
	return nil
}
