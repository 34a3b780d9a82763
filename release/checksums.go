package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

const checksums = "SHA256SUMS"

// writeChecksums writes the checksums of all files of a folder in the format of sha256sum.
func writeChecksums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	var text strings.Builder
	for _, entry := range entries { // by name
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return fmt.Errorf("compute the checksum of %s: %w", entry.Name(), err)
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	if err := os.WriteFile(filepath.Join(folder, checksums), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write checksums: %w", err)
	}
	return nil
}

// printFiles prints the files of a folder with their sizes.
func printFiles(out io.Writer, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out)
	for _, entry := range entries {
		file, err := entry.Info()
		if err != nil {
			return fmt.Errorf("list files: %w", err)
		}
		fmt.Fprintf(table, "%.1f kB\t  %s\n", float64(file.Size())/1000, filepath.Join(folder, entry.Name()))
	}
	return table.Flush()
}
