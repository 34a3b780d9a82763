package image

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// WriteRegistry writes an image into a folder for the fake registry of Kubernetes' agnhost, as agnhost's
// prepare_registry.sh does.
func WriteRegistry(folder string, image Image) error {
	tag, err := name.NewTag(image.Name)
	if err != nil {
		return fmt.Errorf("parse name of image %s: %w", image.Name, err)
	}
	assembled, err := image.assemble(compression.GZip, types.DockerLayer)
	if err != nil {
		return fmt.Errorf("assemble image %s: %w", image.Name, err)
	}
	files, err := registryFiles(tag.TagStr(), assembled)
	if err != nil {
		return fmt.Errorf("read image %s: %w", image.Name, err)
	}
	for file, content := range files {
		path := filepath.Join(folder, filepath.Base(tag.RepositoryStr()), file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("create folder for image %s: %w", image.Name, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write image %s: %w", image.Name, err)
		}
	}
	return nil
}

// registryFiles returns the manifest, the tag that refers to it, and the blobs that it names, by path.
func registryFiles(tag string, image v1.Image) (map[string][]byte, error) {
	manifest, err := image.RawManifest()
	if err != nil {
		return nil, err
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		filepath.Join("manifests", tag):                  []byte(digest.String()),
		filepath.Join("manifests", fileOfDigest(digest)): manifest,
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return nil, err
	}
	if digest, err = image.ConfigName(); err != nil {
		return nil, err
	}
	files[filepath.Join("blobs", fileOfDigest(digest))] = config
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		if digest, err = layer.Digest(); err != nil {
			return nil, err
		}
		content, err := readLayer(layer)
		if err != nil {
			return nil, err
		}
		files[filepath.Join("blobs", fileOfDigest(digest))] = content
	}
	return files, nil
}

func readLayer(layer v1.Layer) ([]byte, error) {
	compressed, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer compressed.Close()
	return io.ReadAll(compressed)
}

// fileOfDigest returns the path of a blob or manifest in a registry.
func fileOfDigest(digest v1.Hash) string {
	return filepath.Join(digest.Algorithm, digest.Hex[:2], digest.Hex, "data")
}
