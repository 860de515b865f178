#!/bin/sh
echo "args $*"
