package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// WriteArchive writes an image into a file for other tools: an OCI image layout, which `ctr image import` and newer
// docker engines read, with the manifest.json by which `docker load` and `crane push` find the same blobs. The output
// is reproducible.
func WriteArchive(file string, image Image) error {
	tag, err := name.NewTag(image.Name)
	if err != nil {
		return fmt.Errorf("parse name of image %s: %w", image.Name, err)
	}
	assembled, err := image.assemble(compression.GZip, types.OCILayer)
	if err != nil {
		return fmt.Errorf("assemble image %s: %w", image.Name, err)
	}
	assembled = mutate.ConfigMediaType(mutate.MediaType(assembled, types.OCIManifestSchema1), types.OCIConfigJSON)
	folder, err := os.MkdirTemp(filepath.Dir(file), "image-")
	if err != nil {
		return fmt.Errorf("create folder for image %s: %w", image.Name, err)
	}
	err = errors.Join(writeLayout(folder, tag, assembled), writeManifest(folder, tag, assembled))
	if err == nil {
		err = pack(file, folder)
	}
	if err := errors.Join(err, os.RemoveAll(folder)); err != nil {
		return fmt.Errorf("write image %s: %w", image.Name, err)
	}
	return nil
}

// writeLayout writes an OCI image layout. containerd and docker read the name from the annotations.
func writeLayout(folder string, tag name.Tag, image v1.Image) error {
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	return path.AppendImage(image, layout.WithPlatform(*config.Platform()), layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          runtimeName(tag),
		"org.opencontainers.image.ref.name": tag.TagStr(),
	}))
}

// writeManifest adds docker's own index, which `docker save` also writes into an OCI image layout.
func writeManifest(folder string, tag name.Tag, image v1.Image) error {
	config, err := image.ConfigName()
	if err != nil {
		return err
	}
	entry := struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{Config: blobPath(config), RepoTags: []string{runtimeName(tag)}}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		entry.Layers = append(entry.Layers, blobPath(digest))
	}
	text, err := json.Marshal([]any{entry})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "manifest.json"), text, 0o644)
}

// runtimeName returns the name by which container runtimes know an image. They use docker.io where the registry's library
// uses index.docker.io (github.com/distribution/reference, splitDockerDomain), and kubelet looks an image up by that
// name.
func runtimeName(tag name.Tag) string {
	if rest, ok := strings.CutPrefix(tag.Name(), name.DefaultRegistry+"/"); ok {
		return "docker.io/" + rest
	}
	return tag.Name()
}

func blobPath(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

// pack writes the files of a folder into an archive, sorted by name.
func pack(file, folder string) error {
	target, err := os.Create(file)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(target)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return addFile(archive, filepath.ToSlash(relative), path, 0o644)
	})
	return errors.Join(err, archive.Close(), target.Close())
}
