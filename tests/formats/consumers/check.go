package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"sync"

	"edgepack.local/small"
)

// Prints the outputs for the recorded input, a number a line.
func main() {
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	input := make([]float32, small.InputElements)
	for i := range input {
		input[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	model, err := small.Open()
	if err != nil {
		log.Fatal(err)
	}
	session, err := model.NewSession(2)
	if err != nil {
		log.Fatal(err)
	}
	output, sign := make([]float32, small.OutputElements), make([]int8, small.SignElements)
	if err := session.Run(input[1:], output, sign); err == nil || err.Error() != `"input" has 32 elements; the slice has 31` {
		log.Fatal(err)
	}
	if _, err := model.NewSession(9999); !errors.Is(err, small.ErrThreads) {
		log.Fatal(err)
	}
	var all sync.WaitGroup
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := session.Run(input, make([]float32, small.OutputElements), make([]int8, small.SignElements)); err != nil {
				log.Fatal(err)
			}
		}()
	}
	all.Wait()
	if err := session.Run(input, output, sign); err != nil {
		log.Fatal(err)
	}
	session.Close()
	session.Close()
	if err := session.Run(input, output, sign); !errors.Is(err, small.ErrNull) {
		log.Fatal(err)
	}
	for i := 0; i < 100; i++ {
		racing, err := small.Open()
		if err != nil {
			log.Fatal(err)
		}
		used, err := racing.NewSession(2)
		if err != nil {
			log.Fatal(err)
		}
		// Closed in any order, twice, and while it runs.
		all.Add(5)
		for j := 0; j < 2; j++ {
			go func() { defer all.Done(); racing.Close() }()
			go func() { defer all.Done(); used.Close() }()
		}
		go func() {
			defer all.Done()
			err := used.Run(input, make([]float32, small.OutputElements), make([]int8, small.SignElements))
			if err != nil && !errors.Is(err, small.ErrNull) {
				log.Fatal(err)
			}
			racing.Backend()
		}()
		all.Wait()
		if _, err := racing.NewSession(1); !errors.Is(err, small.ErrNull) {
			log.Fatal(err)
		}
	}
	model.Close()
	model.Close()
	for i := range output {
		fmt.Println(output[i], sign[i])
	}
}
