#!/bin/sh
echo "args $*: {{ word }}"
echo err >&2
