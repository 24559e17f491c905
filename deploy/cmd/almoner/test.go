package main

import (
	"context"
	"errors"
)

func test(context.Context, string) error { return errors.New("not yet") }
