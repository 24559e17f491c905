package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/almonerhq/almoner/deploy/local/settings"
	"github.com/almonerhq/almoner/deploy/local/stack"
)

// generate rewrites the files in the repository that are generated from the code.
func generate(ctx context.Context, root string) error {
	bin := filepath.Join(root, ".almoner", "bin")
	if err := stack.Build(ctx, root, bin); err != nil {
		return err
	}
	files, err := settings.Files(ctx, root, bin)
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o644); err != nil {
			return err
		}
		fmt.Println("almoner: " + path)
	}
	return nil
}
